"""The page of messages is current."""

from __future__ import annotations

from docs import generate_messages


def test_page_lists_the_messages_of_the_sources() -> None:
    assert generate_messages.PAGE.read_text() == generate_messages.page(), "run: make format"
    assert len(set(generate_messages.messages())) > 500
