import type { ReleaseComponent } from '../installation.ts';
import { compareTags, quayVersionOf } from '../versions.ts';

const systemPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const redisPath = `/opt/app-root/src/bin:/opt/app-root/bin:${systemPath}`;

const changes: Readonly<Record<ReleaseComponent, readonly string[]>> = {
  pause: [`ENV PATH=${systemPath}`, 'ENV container=oci', 'ENTRYPOINT=["sleep"]', 'CMD=["infinity"]'],
  redis: [
    ...[`ENV PATH=${redisPath}`, 'ENV container=oci', 'ENV STI_SCRIPTS_URL=image:///usr/libexec/s2i'],
    ...['ENV STI_SCRIPTS_PATH=/usr/libexec/s2i', 'ENV APP_ROOT=/opt/app-root', 'ENV HOME=/var/lib/redis'],
    ...['ENV PLATFORM=el8', 'ENV REDIS_VERSION=6', 'ENV CONTAINER_SCRIPTS_PATH=/usr/share/container-scripts/redis'],
    ...['ENV REDIS_PREFIX=/usr', 'ENV REDIS_CONF=/etc/redis.conf', 'ENTRYPOINT=["container-entrypoint"]'],
    ...['USER=1001', 'WORKDIR=/opt/app-root/src', 'EXPOSE=6379', 'VOLUME=/var/lib/redis/data', 'CMD ["run-redis"]'],
  ],
  quay: [
    ...['ENV container=oci', 'ENV PYTHONUNBUFFERED=1', 'ENV PYTHONIOENCODING=UTF-8', 'ENV LC_ALL=C.UTF-8'],
    ...['ENV LANG=C.UTF-8', 'ENV QUAYDIR=/quay-registry', 'ENV QUAYCONF=/quay-registry/conf'],
    ...['ENV QUAYRUN=/quay-registry/conf', 'ENV QUAYPATH=/quay-registry', 'ENV PYTHONUSERBASE=/app'],
    ...['ENV PYTHONPATH=/quay-registry', 'ENV TZ=UTC', 'ENV RED_HAT_QUAY=true'],
    ...['ENTRYPOINT=["dumb-init","--","/quay-registry/quay-entrypoint.sh"]', 'WORKDIR=/quay-registry'],
    ...['EXPOSE=7443', 'EXPOSE=8080', 'EXPOSE=8443', 'VOLUME=/conf/stack', 'VOLUME=/datastorage', 'VOLUME=/sqlite'],
    ...['VOLUME=/tmp', 'VOLUME=/var/log', 'USER=1001', 'CMD ["registry"]'],
  ],
};

/**
 * Returns the `--change` options of `podman import` for an image in the installer’s archive, which has only the files
 * of the image. The options are those of the installer (quay/mirror-registry, cmd/utils.go). The paths of Quay’s
 * programs depend on its version.
 */
export function changesOf(component: ReleaseComponent, image: string): string[] {
  const version = quayVersionOf(image);
  const isLate = version === undefined || compareTags(version, '3.12.14') >= 0;
  const quayPath = isLate
    ? `/opt/app-root/bin:/opt/app-root/src/.local/bin:/opt/app-root/src/bin:${systemPath}`
    : `/app/bin/:${systemPath}`;
  const all = component === 'quay' ? [`ENV PATH=${quayPath}`, ...changes.quay] : changes[component];
  return all.flatMap((change) => ['--change', change]);
}
