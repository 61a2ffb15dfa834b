"""Where settings, profiles and state are looked for, and which of these places are safe to use.

`synapse send` imports this file, so it imports nothing that a bare interpreter has not loaded already.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROJECT_FOLDER = ".synapse"
USER_FILE = "config.toml"

_KIND = 0o170000
_FOLDER = 0o040000
_LINK = 0o120000
_STICKY = 0o1000
_GROUP_WRITES = 0o020
_OTHERS_WRITE = 0o002
_OTHERS_ENTER = 0o011
_MOST_LINKS = 40
_NOBODY = 65534
_ACCESS_LIST = "system.posix_acl_access"


def find_project(folder: str) -> str:
    """Return the nearest folder, from `folder` upwards, that has a `.synapse/`; an empty string when none has.

    A `.synapse` of another user does not count: anybody may make one in /tmp, above our work. Nothing above the user's
    home folder counts for what lies in it.
    """
    end = os.path.expanduser("~")
    if not f"{folder}{os.sep}".startswith(f"{end}{os.sep}"):
        end = os.path.realpath(end)
    while True:
        try:
            found = os.lstat(os.path.join(folder, PROJECT_FOLDER))
            if is_ours(found.st_uid) and found.st_mode & _KIND in (_FOLDER, _LINK):
                return folder
        except OSError:
            pass  # there is none here, or it is not for us to see
        above = os.path.dirname(folder)
        if folder in (end, above):
            return ""
        folder = above


def user_folder(environ: "Mapping[str, str]") -> str:
    """The folder of the user's own settings and profiles; it may not exist."""
    return os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "synapse")


def check_place(place: str, folder: str, *, what: str, variable: str) -> None:
    """Check a folder that decides what is run and who is let in, for a process that works in `folder`.

    Raises:
        InvalidSettings: another user can change it, or it lies in the project that `folder` belongs to.
    """
    project = find_project(folder)
    if project and _is_in_project(place, project):
        from synapse.core.errors import InvalidSettings

        raise InvalidSettings(
            f"{what} {place} lies in the project {project}, whose files may come from somebody else",
            hint=f"set {variable} to a folder outside of the project",
        )
    for path, why in writable_by_others(place):
        raise _unsafe(f"{what} {place}", path, why, variable)


def check_content(place: str, *, what: str, variable: str) -> None:
    """Check what lies directly in a folder that `check_place` has found safe.

    Raises:
        InvalidSettings: something in it belongs to another user, or can be changed by one.
    """
    try:
        names = os.listdir(place)
    except OSError:
        return  # it is not there yet, or whoever uses it says what is wrong with it
    for name in names:
        path = os.path.join(place, name)
        try:
            found = os.lstat(path)
        except OSError:
            continue  # another process has just removed it
        if not is_ours(found.st_uid):
            raise _unsafe(f"{what} {place}", path, f"belongs to another user (uid {found.st_uid})", variable)
        if found.st_mode & _KIND == _LINK:
            for target, why in writable_by_others(path):
                raise _unsafe(f"{what} {place}", target, why, variable)
        elif _others_write(path, found):
            raise _unsafe(f"{what} {place}", path, _open_to_others(found), variable)


def writable_by_others(place: str, links: int = 0) -> "Iterator[tuple[str, str]]":
    """Yield each part of a path through which another user could change what is found there, and why.

    A folder with the sticky bit, such as /tmp, is a safe place to lie in: there nobody can replace what belongs to
    another. Each symbolic link on the way is followed by its own path.
    """
    path = os.sep
    inner = [name for name in os.path.abspath(place).split(os.sep) if name]
    for number, name in enumerate(["", *inner]):
        path = os.path.join(path, name) if name else path
        try:
            found = os.lstat(path)
        except OSError:
            return  # from here on nothing is there yet
        is_last = number == len(inner)
        if not is_ours(found.st_uid):
            yield path, f"belongs to another user (uid {found.st_uid})"
        elif found.st_mode & _KIND == _LINK:
            if links < _MOST_LINKS:
                target = os.path.join(os.path.dirname(path), os.readlink(path))
                yield from writable_by_others(target, links + 1)
        elif _others_write(path, found) and (is_last or not found.st_mode & _STICKY):
            yield path, _open_to_others(found)


def is_ours(owner: int) -> bool:
    """Whether what this uid owns can be relied on: the user's own, and root's.

    In a sandbox with a user namespace root has no number, and its folders show the number of nobody.
    """
    return owner in (os.getuid(), 0) or (owner == _NOBODY and _hides_root())


def _hides_root() -> bool:
    try:
        with open("/proc/self/uid_map", "rb") as file:
            return file.read().split() != [b"0", b"0", b"4294967295"]
    except OSError:
        return False


def _is_in_project(place: str, project: str) -> bool:
    if os.path.realpath(os.path.expanduser("~")) == os.path.realpath(project):
        return False
    inside = os.path.realpath(project).rstrip(os.sep) + os.sep
    return (os.path.realpath(place) + os.sep).startswith(inside)


def _others_write(path: str, found: os.stat_result) -> bool:
    if not found.st_mode & (_OTHERS_WRITE | _GROUP_WRITES) or _is_hidden(path):
        return False
    return bool(found.st_mode & _OTHERS_WRITE) or not _is_private_group(path, found.st_gid)


def _is_hidden(path: str) -> bool:
    """Whether others cannot reach it, since one of the folders around it lets nobody else in."""
    folder = os.path.dirname(os.path.realpath(path))
    try:
        while os.stat(folder).st_mode & _OTHERS_ENTER:
            above = os.path.dirname(folder)
            if above == folder:
                return False
            folder = above
    except OSError:
        return False
    return True


def _is_private_group(path: str, group: int) -> bool:
    """Whether only this user is in the group, as where each user has a group of their own (umask 002)."""
    import grp
    import pwd

    try:
        known, me = grp.getgrgid(group), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    if known.gr_gid != me.pw_gid or known.gr_name != me.pw_name or set(known.gr_mem) - {me.pw_name}:
        return False
    try:
        # An access list may let further users write; the mode shows that as a right of the group.
        return _ACCESS_LIST not in os.listxattr(path)
    except (AttributeError, OSError):
        return True  # this system, or this disk, has none


def _open_to_others(found: os.stat_result) -> str:
    return f"can be written by other users (mode {found.st_mode & 0o7777:04o})"


def _unsafe(what: str, path: str, why: str, variable: str) -> Exception:
    from synapse.core.errors import InvalidSettings

    remedy = f"chmod go-w {path}" if "mode" in why else f"make it yours, or set {variable} to a folder of your own"
    return InvalidSettings(f"{what} is not safe: {path} {why}", hint=remedy)
