"""The Model Context Protocol: the tools by which an agent, or an app of a person, sends messages without a shell."""
