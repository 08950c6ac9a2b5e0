"""What people read: the report from the release alone, and the evaluation against real rows, which is not private."""
