"""Finds the folders of settings, profiles and state, and checks that no other user can change them.

`synapse send` imports this module, so it imports only what a bare interpreter has already loaded.
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
_MAX_LINKS = 40
_NOBODY = 65534
_ACCESS_LIST = "system.posix_acl_access"


def find_project(folder: str) -> str:
    """Returns the nearest folder, from `folder` upwards, that has a `.synapse/`; an empty string when none has.

    Ignores a `.synapse` of another user, because any user can create one in /tmp. From inside the user's home folder,
    ignores folders above it.
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
            pass  # none here, or not readable
        above = os.path.dirname(folder)
        if folder in (end, above):
            return ""
        folder = above


def user_folder(environ: "Mapping[str, str]") -> str:
    """Returns the folder of the user's settings and profiles, which may not exist."""
    return os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "synapse")


def own_profile(name: str, environ: "Mapping[str, str]", folder: str) -> str:
    """Returns the file of a profile that the user, or the project of `folder`, has added; empty if there is none."""
    project = find_project(folder)
    places = [user_folder(environ), *([os.path.join(project, PROJECT_FOLDER)] if project else [])]
    files = (os.path.join(place, "profiles", f"{name}.toml") for place in places)
    return next((file for file in files if os.path.isfile(file)), "")


def check_place(place: str, folder: str, *, what: str, variable: str) -> None:
    """Checks a folder that decides what is run and who gets in, for a process that works in `folder`.

    Raises:
        InvalidSettings: another user can change it, or it is inside the project of `folder`.
    """
    project = find_project(folder)
    if project and _is_in_project(place, project):
        from synapse.core.errors import InvalidSettings

        raise InvalidSettings(
            f"{what} {place} is inside the project {project}, whose files may come from other people",
            hint=f"set {variable} to a folder outside the project",
        )
    for path, why in writable_by_others(place):
        raise _unsafe(f"{what} {place}", path, why, variable)


def check_content(place: str, *, what: str, variable: str) -> None:
    """Checks the entries of a folder that `check_place` has found safe.

    Raises:
        InvalidSettings: an entry belongs to another user, or another user can change it.
    """
    try:
        names = os.listdir(place)
    except OSError:
        return  # it does not exist yet, or its user reports the problem
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
    """Yields each part of a path through which another user could change its target, and why.

    A folder with the sticky bit, such as /tmp, is safe: users cannot replace each other's entries there. Follows each
    symbolic link and checks the path of its target too.
    """
    path = os.sep
    inner = [name for name in os.path.abspath(place).split(os.sep) if name]
    for number, name in enumerate(["", *inner]):
        path = os.path.join(path, name) if name else path
        try:
            found = os.lstat(path)
        except OSError:
            return  # the rest does not exist yet
        is_last = number == len(inner)
        if not is_ours(found.st_uid):
            yield path, f"belongs to another user (uid {found.st_uid})"
        elif found.st_mode & _KIND == _LINK:
            if links < _MAX_LINKS:
                target = os.path.join(os.path.dirname(path), os.readlink(path))
                yield from writable_by_others(target, links + 1)
        elif _others_write(path, found) and (is_last or not found.st_mode & _STICKY):
            yield path, _open_to_others(found)


def is_ours(owner: int) -> bool:
    """Returns whether files of this uid can be trusted: the user's own and root's.

    In a sandbox with a user namespace root is not mapped, and its files show the uid of `nobody`.
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
    """Returns whether other users cannot reach `path`, because a folder above it is closed to them."""
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
    """Returns whether only this user is in the group, as on systems with a group per user (umask 002)."""
    import grp
    import pwd

    try:
        known, me = grp.getgrgid(group), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    if known.gr_gid != me.pw_gid or known.gr_name != me.pw_name or set(known.gr_mem) - {me.pw_name}:
        return False
    try:
        # An access list may let more users write; the mode shows that as a right of the group.
        return _ACCESS_LIST not in os.listxattr(path)
    except (AttributeError, OSError):
        return True  # this system or file system has no access lists


def _open_to_others(found: os.stat_result) -> str:
    return f"can be written by other users (mode {found.st_mode & 0o7777:04o})"


def _unsafe(what: str, path: str, why: str, variable: str) -> Exception:
    from synapse.core.errors import InvalidSettings

    hint = f"chmod go-w {path}" if "mode" in why else f"change its owner, or set {variable} to a folder of your own"
    return InvalidSettings(f"{what} is not safe: {path} {why}", hint=hint)
