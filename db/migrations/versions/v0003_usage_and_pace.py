"""What attempts use, how fast they train, and when the scheduler expects them to start"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("usage", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("trained_s", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("starts_at", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_column("starts_at")
        batch_op.drop_column("trained_s")
        batch_op.drop_column("usage")
