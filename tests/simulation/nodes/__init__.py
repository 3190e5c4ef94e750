"""A broker of several nodes on one loop: parent, nodes and links are real; processes, sockets and disks are not."""
