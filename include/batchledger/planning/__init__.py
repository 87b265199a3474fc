"""Which ranges come next: live, replayed, rewound. Pure."""
