"""Question 3: does one tower find, by words, what the other tower shows, and how to repair it where it does not?"""
