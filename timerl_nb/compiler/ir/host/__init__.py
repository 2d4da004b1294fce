"""Operations on the host: user functions, and input and output per iteration."""
