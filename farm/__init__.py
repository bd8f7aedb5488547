"""Certified optical switching schedules for collective communication."""
