"""Several environments at once: env managers and the vectors of other libraries."""
