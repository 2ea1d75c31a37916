"""What functions of mathematics mean for complex numbers, in ops on real and imaginary parts."""
