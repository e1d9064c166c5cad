"""Commands of other systems under their own names, said to Swell. What they mean is in `swell.foreign`."""
