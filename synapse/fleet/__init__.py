"""Agents on many machines: relayed messages, the shipped log, its replica, their wire. Pure; see `synapse.link`."""
