"""The UNIX group that shares a workspace."""

import grp
import os

from ..errors import BadInput, Problem


def require_group(name: str, where: str = "") -> None:
    """Refuse a group that this user cannot give to files.

    Raises:
        BadInput: there is no such group, or this user is not in it; `where` stands before it.
    """
    try:
        group = grp.getgrnam(name)
    except KeyError:
        message = f"no group {name!r} on this machine"
        raise BadInput(Problem(key=f"{where}group", message=message, fix=_own_groups())) from None
    if group.gr_gid not in _group_ids():
        # Membership begins at the login: the administrator may have added them a minute ago.
        fix = f"Ask to be added to it, then log in again. {_own_groups()}"
        message = f"you are not in the group {name!r}"
        raise BadInput(Problem(key=f"{where}group", message=message, fix=fix))


def _group_ids() -> set[int]:
    return {os.getegid(), *os.getgroups()}


def _own_groups() -> str:
    names = []
    for number in sorted(_group_ids()):
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return f"Your groups: {', '.join(names) or 'none with a name'}"
