"""Every kind of row that residents of coordinator tablets have, as this version knows them."""

from pqbroker.storage.tablets.coordinator_rows import GROUP_ROWS, TRANSACTIONAL_ROWS
from pqbroker.storage.tablets.modern_group_rows import MODERN_ROWS

RESIDENT_ROWS = (GROUP_ROWS, TRANSACTIONAL_ROWS, *MODERN_ROWS)
