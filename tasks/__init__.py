"""What a worker computes, and the pools of workers."""
