"""The time and memory that plugins' code may take, and the watchdog that ends what takes more."""
