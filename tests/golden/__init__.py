"""Parts of scripts/make_golden_answers.py: the probe's questions, and servers in this process."""
