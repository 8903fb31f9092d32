"""The operations in TileLang, for Hopper (sm_90a)."""
