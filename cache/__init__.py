"""Results that outlive the job: stores of bytes, and the result cache on top of them."""
