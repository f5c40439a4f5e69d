"""Workarounds of upstream behaviour, one file each, with the version they were needed for."""
