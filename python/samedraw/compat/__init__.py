"""Other libraries' sampling functions, by their names and arguments."""
