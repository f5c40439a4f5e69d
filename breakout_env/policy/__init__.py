"""Policies and networks on pixels."""
