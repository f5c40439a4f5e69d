"""Workarounds, one file each. A file begins with the version of a package and the behaviour that it works around; its
test fails once that has changed.
"""
