"""The theory that is printed and tested, but not run by the package."""
