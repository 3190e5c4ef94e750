"""docs/settings.md says what the declarations say."""

import pytest

from tests.support.settings_page import PAGE, settings_page

pytestmark = pytest.mark.spec("G.4")


def test_the_settings_page_matches_the_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), "run: python -m tests.support.settings_page"
