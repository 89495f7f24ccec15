"""Typed configuration: schemas, validation, safe instantiation and the command line. Imports no torch."""
