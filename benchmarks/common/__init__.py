"""What benchmarks share: interleaved rounds, the command line, recorded play, child processes, and peers."""
