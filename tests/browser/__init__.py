"""What people see, in a real Chromium; with ``BATCHLEDGER_PICTURES`` naming a folder, the README's pictures too."""
