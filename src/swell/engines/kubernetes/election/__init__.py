"""Which server acts (`lease`), and which one takes in what kubectl applies (`intake`)."""
