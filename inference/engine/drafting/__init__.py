"""Speculative decoding: how many drafts, the MTP layer's passes, and which drafts were right."""
