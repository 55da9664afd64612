"""Reading presets, TOML files and configs into specs."""
