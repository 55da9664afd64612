"""Launch files of training and serving frameworks: written from a layout, read back into one."""
