"""What runs in the next step: the waiting queue, the batch, and the pages that requests hold."""
