"""What a grid calls cells that another grid had before it"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "cell_names",
        sa.Column("grid_id", sa.String(80), sa.ForeignKey("grids.grid_id"), primary_key=True),
        sa.Column("cell_id", sa.String(16), sa.ForeignKey("cells.cell_id"), primary_key=True),
        sa.Column("stage", sa.String(64), nullable=False),
        sa.Column("backbone", sa.String(200), nullable=False),
        sa.Column("dataset", sa.String(200), nullable=False),
        sa.Column("head", sa.String(400), nullable=False),
        sa.Column("recipe", sa.String(64), nullable=False),
        sa.Column("axes", sa.Text(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("cell_names")
