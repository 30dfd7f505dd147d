"""Words that people put on grids and runs"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "tags",
        sa.Column("target", sa.String(80), primary_key=True),
        sa.Column("tag", sa.String(64), primary_key=True),
    )
    op.create_index("tags_by_tag", "tags", ["tag"])


def downgrade() -> None:
    op.drop_table("tags")
