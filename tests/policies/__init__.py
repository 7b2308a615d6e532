"""Tests of the policies: values in, decision out."""
