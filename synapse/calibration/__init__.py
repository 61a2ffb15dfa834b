"""Checks a real CLI against a scripted model: is its state still read correctly?"""
