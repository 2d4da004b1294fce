"""Results of runs: values, files and data frames."""
