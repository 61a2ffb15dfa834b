"""How each model vendor's API says it: requests to what was asked, answers to the bytes of a stream. Pure."""
