"""Confidential rounds between organisations: nobody shows inputs, models or votes to anybody."""
