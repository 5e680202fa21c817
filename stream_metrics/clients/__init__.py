"""Clients that services and recordings share."""
