"""Which layout is fastest, what an idea would bring, and what more devices cost."""
