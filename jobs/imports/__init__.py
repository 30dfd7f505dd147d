"""Results of runs that were trained elsewhere: files of other programs, and what they say."""
