"""What people type without thinking about it: short facts, corrections that name nothing, questions in a word, tables to look up."""
