"""Mixtures of experts: router, capacity, dispatch, balance, traffic."""
