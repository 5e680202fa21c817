"""The settings, by the part of the program that reads them."""
