"""Operations of tensors: arithmetic, reductions, scans, rearrangements, windows, convolutions, random draws."""
