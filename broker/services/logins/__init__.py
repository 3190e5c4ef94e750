"""Logins of users: the rules of SASL's mechanisms, stored users, checks of passwords."""
