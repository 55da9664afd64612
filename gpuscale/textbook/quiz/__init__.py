"""The documents' questions: their stated values, and answers by the functions of `core`."""
