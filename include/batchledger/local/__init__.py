"""What a developer's machine needs: services, sample records, the demo, torture. The product never imports it."""
