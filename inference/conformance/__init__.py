"""Is an implementation of DeepSeek-V3.2 right, and if not, which bug does it have? Traces, their comparison, a probe over HTTP."""
